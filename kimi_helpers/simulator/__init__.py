"""A loopback OpenRouter whose true token ids are known."""
