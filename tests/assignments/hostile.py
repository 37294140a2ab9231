"""Hostile cells for submissions of assignment 1, beside one honest answer.

In READS the test replaces SECRET, SITE and REPOSITORY by folders.
"""

HONEST = """
import torch
def layer_norm(x, g, b, eps):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return g * (x - mean) / torch.sqrt(var + eps) + b
"""

RESOURCES = """
import os, subprocess, sys, time
def attention(*arguments):
    while True:
        try:
            time.sleep(0.1)
        except BaseException:
            pass
def train_epoch(*arguments):
    return torch.ones(12_500_000_000)          # 50 GB
def add_norm(*arguments):
    while True:
        try:
            os.fork()
        except OSError:
            pass
def feed_forward(*arguments):
    return "x" * 100_000_000
def evaluate(*arguments):
    subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    os._exit(0)
"""

ENDS = """
import atexit, sys, threading, time
class Ends:
    atexit.register(time.sleep, 1000)
    threading.Thread(target=time.sleep, args=(1000,)).start()
    sys.exit(0)
def attention(*arguments):
    sys.exit("20 points")
def feed_forward(*arguments):
    raise KeyboardInterrupt
class Slow:
    while True:
        pass
"""

FORGES = """
import json, os, sys, time
class Forges:
    line = json.dumps({"question": "attention", "points": 4, "records": [{"value": 1}]})
    print(line)
    for number in range(3, 20):
        try:
            os.write(number, (line + chr(10)).encode())
        except OSError:
            pass
    numpy = __import__("numpy")
    numpy.allclose = torch.allclose = torch.equal = lambda *more, **other: True
    torch.testing.assert_close = lambda *more, **other: None
    time.monotonic = time.time = lambda: 0.0
class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/evil",)
    def __eq__(self, other):
        return True
    def tolist(self):
        return self
def add_norm(*arguments):
    return Evil()
def evaluate(model, batches):
    return Evil(), [Evil()]
"""

PATCHES_JSON = """
import json
json.dumps = lambda *more, **other: '{"question": "attention", "points": 4, "score": 100}'
"""

READS = """
import glob, os, shutil
FOUND = []
class Reads:
    for pattern in ("/in/*", "/tmp/*", "/root/*", "/home/*/*", "/work/*", "/etc/*"):
        FOUND += glob.glob(pattern)
    for path in ("SECRET/answers/edition.json", "SECRET", "/etc/shadow"):
        try:
            FOUND.append(open(path).read())
        except OSError:
            pass
    for path in ("SECRET/written", "/etc/written", "/in/written", "/usr/written"):
        try:
            open(path, "w").write("x")
            FOUND.append(path)
        except OSError:
            pass
    shutil.rmtree("/in", ignore_errors=True)
    shutil.rmtree("SECRET", ignore_errors=True)
def attention(*arguments):
    raise ValueError(" ".join(FOUND)[-190:])
def add_norm(*arguments):
    import socket
    socket.create_connection(("1.1.1.1", 53), timeout=2)
def feed_forward(x, *arguments):
    import mmlcourse.lessons.checks
def evaluate(model, batches):
    from transformers import BertModel
def train_epoch(*arguments):
    import sys
    sys.meta_path[:] = [one for one in sys.meta_path if "Refuse" not in type(one).__name__]
    sys.path += ["REPOSITORY", "SITE"]
    import mmlcourse
    return [1.0]
"""
