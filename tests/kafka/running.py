"""A job in a folder of its own, and the process that runs it."""

import os
import tempfile


class Running:
    def __init__(self, prefix):
        self.folder, self.process = tempfile.TemporaryDirectory(prefix=prefix), None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.kill()
        self.folder.cleanup()

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def kill(self):
        self.process.kill()
        self.process.wait()
