"""An engine that a test commands: a line of JSON in, a line of JSON out. It describes its weights by numpy's bytes."""

import json
import sys
import threading
import time

from engine_contents import contents

import bascule


class Engine:
    def join(self, endpoint, worker, **options):
        self.receiver = bascule.Receiver(endpoint, worker=worker, **options)

    def take(self, timeout=30, version=None):
        return {"version": self.receiver.take(version, timeout), "weights": contents(self.receiver.weights())}

    def finish(self, error=None):
        self.receiver.finish(ValueError(error) if error else None)

    def commit(self, version):
        self.receiver.wait_ready(30, version)
        return {"version": self.receiver.commit().version, "weights": contents(self.receiver.weights())}

    def follow(self):
        """Lets the engine flip automatically."""
        def run():
            while True:
                self.receiver.commit()
                time.sleep(0.001)
        threading.Thread(target=run, daemon=True).start()

    def weights(self):
        return {"version": self.receiver.status().version, "weights": contents(self.receiver.weights())}

    def status(self):
        status = self.receiver.status()
        return {"state": status.state, "version": status.version, "attached": status.attached,
                "error": str(status.error or ""), "code": getattr(status.error, "code", "")}


engine = Engine()
for line in sys.stdin:
    command = json.loads(line)
    try:
        answer = getattr(engine, command.pop("what"))(**command)
    except bascule.BasculeError as error:
        answer = {"error": str(error), "code": error.code}
    print(json.dumps(answer), flush=True)
