"""What a new Python of the tests does when it starts: it looks for garbage less often.

Importing JAX makes half a million objects that stay. Looking for garbage among them, meanwhile and
at the end, takes a quarter of the processor time of a program that only imports it. Forks have the
same settings (`tests.template`). Tests marked `anew` start as a user's Python does.
"""

import atexit
import gc

gc.set_threshold(50_000, 20, 50)
atexit.register(gc.freeze)  # Python's end then looks at no object
