"""The command line in one of several processes, the first of which takes its time to begin."""

import os
import time

from otprune.__main__ import main

if __name__ == "__main__":
    if os.environ["RANK"] == "0":
        time.sleep(3)
    main()
