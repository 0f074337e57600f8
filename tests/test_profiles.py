"""Profile files: what a good one gives, and what is said of a bad one."""

from pathlib import Path

import pytest

from kimi_helpers.profiles import ProfileError, ProviderProfile, read_profiles
from kimi_helpers.serving_stacks import ServingStack, known_stacks
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.workspace import DATA

GOOD = """
[[stack]]
name = "mine"
seen = "nowhere"
blanks = true
strips_json = ["reasoning start"]

[[profile]]
provider = "Chutes"
stacks = ["faithful"]
replies = 40
evidence = "calibrated"

[[profile]]
provider = "中国 \\"host\\""
stacks = ["mine", "blanks"]
replies = "built"
evidence = "told"
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "profiles.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_good_file(tmp_path: Path) -> None:
    profiles = read_profiles(write(tmp_path, GOOD))
    assert list(profiles) == ["Chutes", '中国 "host"']
    assert profiles["Chutes"] == ProviderProfile("Chutes", (known_stacks()["faithful"],), 40, "calibrated")
    mine = ServingStack("mine", "nowhere", blanks=True, strips_json=frozenset({"reasoning start"}))
    assert profiles['中国 "host"'] == ProviderProfile('中国 "host"', (mine, known_stacks()["blanks"]), None, "told")


def test_the_profiles_of_the_loopback_hosts() -> None:
    profiles = read_profiles(DATA / "profiles/loopback.toml")
    assert set(profiles) <= {host.name for host in HOSTS}
    for name, end_counted in (("Loopback Faithful", True), ("Loopback End Not Counted", False)):
        (stack,) = profiles[name].stacks
        assert stack.counts_end is end_counted
        assert (stack.blanks, stack.parses_reasoning, stack.arguments, stack.ids) == (False, True, "sampled", "sampled")
        assert not stack.strips_json | stack.strips_stream
    (blanks,) = profiles["Loopback Blanks"].stacks
    assert blanks.blanks
    (left,) = profiles["Loopback Think In Content"].stacks
    assert not left.parses_reasoning
    assert all(profile.replies is None and profile.evidence for profile in profiles.values())


ONE = '[[profile]]\nprovider = "A"\nstacks = ["faithful"]\nreplies = "built"\nevidence = "e"\n'
STACK = '[[stack]]\nname = "mine"\nseen = "s"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[profile]", "TOML"),
        (b"\xff\xfe", "TOML"),
        ("", "profile"),
        (ONE.replace('provider = "A"\n', ""), "provider"),
        (ONE.replace('evidence = "e"\n', ""), "evidence"),
        (ONE.replace('stacks = ["faithful"]\n', ""), "stacks"),
        (ONE.replace('["faithful"]', "[]"), "no serving stack"),
        (ONE.replace("faithful", "faithfull"), "'faithfull'"),
        (ONE.replace('["faithful"]', '"faithful"'), "stacks"),
        (ONE.replace('"A"', "3"), "provider"),
        (ONE + 'end_token_counted = "yes"\n', "end_token_counted"),
        (ONE.replace('"built"', '"many"'), "replies"),
        (ONE.replace('"built"', "-1"), "replies"),
        (ONE.replace('replies = "built"\n', ""), "replies"),
        (ONE + "\n" + ONE, "two profiles"),
        (ONE + "\n[other]\n", "other"),
        (ONE + STACK.replace('seen = "s"\n', ""), "seen"),
        (ONE + STACK + "blank = true\n", "blank"),
        (ONE + STACK + 'arguments = "pretty"\n', "arguments"),
        (ONE + STACK + 'strips_json = ["front"]\n', "strips_json"),
    ],
)
def test_each_fault_is_told_in_a_sentence(tmp_path: Path, text: str | bytes, told: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ProfileError) as caught:
        read_profiles(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert told in message
    assert message.endswith(".")
    assert "\n" not in message.removeprefix(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"absent\.toml cannot be read"):
        read_profiles(tmp_path / "absent.toml")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profiles(tmp_path)
