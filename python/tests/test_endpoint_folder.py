"""An engine that follows a folder of endpoints: what appears is joined, and what goes is left."""

import copy
import os
import shutil
import threading

import numpy
import pytest

import bascule

PATIENCE = 60


@pytest.fixture
def url(tmp_path):
    return f"shm://{tmp_path}/adapters?suspect_after=7s"


def endpoint_of(url, name):
    place, _, options = url.partition("?")
    return f"{place}/{name}?{options}"


def test_what_appears_is_joined_and_what_goes_is_left(url, tmp_path):
    seen, senders = [], {}

    def make(name):
        senders[name] = sender = bascule.Sender(endpoint_of(url, name), expect_workers=0)
        sender.register_model({name: numpy.ones(3)})

    make("first")
    receivers = {}
    with bascule.EndpointFolder(url) as folder:
        for appeared, gone in folder.changes():
            seen.append((sorted(appeared), gone))
            for name, endpoint in appeared.items():
                assert endpoint == endpoint_of(url, name)
                receivers[name] = bascule.Receiver(endpoint, worker="engine")
                senders[name].wait_for_workers(1, PATIENCE)
                senders[name].send_async()
                receivers[name].wait_ready(PATIENCE)
                assert receivers[name].commit().changed and list(receivers[name].weights()) == [name]
                assert senders[name].wait_async().complete
            for name in gone:
                receivers.pop(name).close()
            if len(seen) == 1:
                make("second")
            elif len(seen) == 2:
                senders.pop("first").close()
                assert sorted(folder.endpoints()) == ["first", "second"], "its engine serves on without a sender"
                shutil.rmtree(tmp_path / "adapters" / "first")
            else:
                break
    assert seen == [(["first"], []), (["second"], []), ([], ["first"])]
    for end in (*receivers.values(), *senders.values()):
        end.close()


def test_close_ends_another_threads_loop(url):
    folder = bascule.EndpointFolder(url)
    loop = threading.Thread(target=lambda: list(folder.changes()))
    loop.start()
    folder.close()
    loop.join(PATIENCE)
    assert not loop.is_alive()
    with pytest.raises(bascule.BasculeError, match="this EndpointFolder is closed"):
        folder.endpoints()
    folder.close()


def test_its_descriptor_shows_changes_to_an_event_loop(url):
    import select

    with bascule.EndpointFolder(url) as folder:
        assert folder.endpoints() == {}
        changed = select.poll()
        changed.register(folder.fileno(), select.POLLIN)
        assert not changed.poll(0)
        with bascule.Sender(endpoint_of(url, "a")):
            assert changed.poll(1000 * PATIENCE)


def test_what_is_no_folder_of_endpoints_is_refused(url, endpoint):
    with bascule.Sender(endpoint):
        with pytest.raises(bascule.BasculeError, match="is itself an endpoint; name the folder in which it lies"):
            bascule.EndpointFolder(endpoint)
    with pytest.raises(bascule.BasculeError, match="expected a folder"):
        bascule.EndpointFolder("shm://127.0.0.1:29500")
    with pytest.raises(bascule.BasculeError, match="url: expected a URL"):
        bascule.EndpointFolder(7)
    with bascule.EndpointFolder(url) as folder, pytest.raises(bascule.BasculeError, match="cannot be copied or pickled"):
        copy.copy(folder)


def test_a_forked_child_makes_its_own(url):
    with bascule.EndpointFolder(url) as folder:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                folder.endpoints()
            except bascule.BasculeError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as said:
            assert "was forked from" in said.read()
        assert os.waitpid(child, 0)[1] == 0
        assert folder.endpoints() == {}
