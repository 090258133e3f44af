"""The environment variables with which vLLM follows adapters. They are read without vLLM."""

import pytest

from bascule import BasculeError
from bascule.vllm.adapter_versions import load_timeout
from bascule.vllm.adapters import configured, versions_kept


@pytest.mark.parametrize("value, named, folder", [
    ("", {}, ""),
    ("math=shm:///run/a?timeout=5s", {"math": "shm:///run/a?timeout=5s"}, ""),
    (" math = shm:///run/a, code=memmap:///run/b,", {"math": "shm:///run/a", "code": "memmap:///run/b"}, ""),
    (f"a/b=shm:///run/a,größe-😀=shm:///run/b,{'x' * 300}=shm:///run/c",
     {"a/b": "shm:///run/a", "größe-😀": "shm:///run/b", "x" * 300: "shm:///run/c"}, ""),
    ("shm:///run/adapters?flip_timeout=9s", {}, "shm:///run/adapters?flip_timeout=9s"),
])
def test_adapters_are_named_or_in_a_folder(monkeypatch, value, named, folder):
    monkeypatch.setenv("BASCULE_ADAPTERS", value)
    assert configured().named == named and configured().folder == folder
    assert bool(configured()) == bool(named or folder)


@pytest.mark.parametrize("value, said", [("math", "found 'math'"), ("=shm:///a", "found '=shm:///a'"),
                                         ("a@1=shm:///a", "found 'a@1=shm:///a'"),
                                         ("a=shm:///a,a=shm:///b", "the name a occurs twice"),
                                         ("shm:///a,shm:///b", "one folder of endpoints, found 'shm:///a'"),
                                         ("shm:///a,b=shm:///b", "one folder of endpoints, found 'shm:///a'"),
                                         ("a=", "found 'a='"), ("a=/run/a", "found 'a=/run/a'"),
                                         ("a=shm:///a,b=shm:///a/?timeout=5s", "b has the endpoint of a;"),
                                         ("a=shm:///run/base/", "a has the endpoint of the base model")])
def test_other_values_are_refused_by_name(monkeypatch, value, said):
    monkeypatch.setenv("BASCULE_ENDPOINT", "shm:///run/base?timeout=5s")
    monkeypatch.setenv("BASCULE_ADAPTERS", value)
    with pytest.raises(BasculeError, match=f"BASCULE_ADAPTERS: .*{said}"):
        configured()


def test_how_many_versions_are_kept(monkeypatch):
    monkeypatch.delenv("BASCULE_ADAPTER_KEEP", raising=False)
    assert versions_kept() == 2
    monkeypatch.setenv("BASCULE_ADAPTER_KEEP", "3")
    assert versions_kept() == 3
    for value in ("0", "-1", "two", "²"):
        monkeypatch.setenv("BASCULE_ADAPTER_KEEP", value)
        with pytest.raises(BasculeError, match="BASCULE_ADAPTER_KEEP: expected a number of versions, 1 or more, found"):
            versions_kept()


@pytest.mark.parametrize("options, seconds", [("", 120), ("?load_timeout=400ms", 0.4), ("?timeout=1s&load_timeout=1m30s", 90)])
def test_the_load_timeout_of_an_endpoint(options, seconds):
    assert load_timeout(f"shm:///run/a{options}") == pytest.approx(seconds)
