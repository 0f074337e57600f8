"""Which names and texts count as secrets."""

import pytest

from kimi_helpers.leaks import find_leak, is_secret_name


@pytest.mark.parametrize(
    "name", ["key", "api_key", "OPENROUTER_API_KEY", "hfToken", "APIKey", "password", "my_secret_2"]
)
def test_a_name_with_a_secret_word_is_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "keyboard", "monkeys", "sort_keys", "model", "n"])
def test_a_name_that_only_contains_the_letters_is_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer sk-or-v1-0123456789abcdef",
        '{"key":"sk-proj-Ab3dEf6hIj9kLm2n"}',
        "hf_ABCDEFGHIJKLMNOPQRSTUVWX",
        "\x1b[32mhf_ABCDEFGH\x1b[39mIJKLMNOPQRSTUVWX",
    ],
)
def test_the_shape_of_a_key_is_found(text: str) -> None:
    assert find_leak(text) == "a text shaped like an API key"


@pytest.mark.parametrize(
    "text",
    ["a task-oriented-dialogue-set-2024", "sk-or-v1-...", "from hf_hub import x", "sk-learn", "hf_dataset_of_mine"],
)
def test_words_that_resemble_a_key_are_not(text: str) -> None:
    assert find_leak(text) is None


@pytest.mark.parametrize("variable", ["SOME_API_KEY", "SOME_TOKEN", "SOME_SECRET"])
def test_the_value_of_a_secret_variable_is_found_and_not_told(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, 'quite "plain"')
    assert find_leak('it is quite "plain" here') == f"the value of {variable}"
    assert find_leak("it is quite plain here") is None


def test_a_value_too_short_to_be_a_secret_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "seven77")
    assert find_leak("seven77") is None
