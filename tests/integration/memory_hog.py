"""Allocates memory step by step and keeps it: memory_hog.py STEP_MIB STEPS SECONDS_BETWEEN."""

import sys
import time

step, steps, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
taken = []
for _ in range(steps):
    taken.append(bytearray(b"\1" * (step << 20)))
    print(len(taken) * step, flush=True)
    time.sleep(pause)
time.sleep(600)
