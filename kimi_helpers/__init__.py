"""Kimi replies of chat-completions APIs, turned into graded token ids for drafter training."""
