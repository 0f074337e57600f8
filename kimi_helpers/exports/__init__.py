"""A training set in the formats of the trainers, a module each; what differs between them is in `conventions`."""
