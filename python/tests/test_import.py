"""A second import of the package into one process leaves the first one as it was."""

import subprocess
import sys
import textwrap

import pytest

AGAIN = {
    "a subinterpreter": """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        other = interpreters.create()
        code = f"import sys; sys.path[:] = {sys.path!r}; import bascule"
        try:
            failed = interpreters.run_string(other, code)  # returned since Python 3.13, raised before
            raise RuntimeError(failed and failed.formatted)
        except RuntimeError as error:
            print("main interpreter, found a subinterpreter" in str(error))
        interpreters.destroy(other)
    """,
    "a removal from sys.modules": """
        for name in [name for name in sys.modules if name.split(".")[0] == "bascule"]:
            del sys.modules[name]
        try:
            import bascule
        except ImportError as error:
            print("expected one import per process" in str(error))
    """,
}


@pytest.mark.parametrize("again", AGAIN)
def test_a_second_import_is_refused_and_the_first_goes_on(again, endpoint):
    program = textwrap.dedent("""
        import sys, numpy, bascule
        with bascule.Sender(sys.argv[1]) as sender, bascule.Receiver(sys.argv[1], worker="w") as receiver:
            sender.register_model({"a": numpy.ones(3)})
            sender.wait_for_workers(1)
            for version in 1, 2:
                sender.send_async()
                assert receiver.take() == version
                receiver.finish()
                assert sender.wait_async().complete
                try:
                    sender.send(worker_ids=["unknown"])
                except RuntimeError as error:
                    assert error.code == "NOT_FOUND"
                if version == 1:
    """) + textwrap.indent(textwrap.dedent(AGAIN[again]), " " * 12)
    run = subprocess.run([sys.executable, "-c", program, endpoint], text=True, capture_output=True, timeout=60)
    assert (run.stdout, run.stderr, run.returncode) == ("True\n", "", 0)
