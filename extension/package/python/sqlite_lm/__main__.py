"""The program sqlite-lm, which the package has beside the extension."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sqlite-lm")
    os.execv(program, ["sqlite-lm", *sys.argv[1:]])


if __name__ == "__main__":
    main()
