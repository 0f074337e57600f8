"""The verbs of the command line, a module each, loaded when one is called."""
