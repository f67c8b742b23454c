"""The one exception that is a user's to fix."""


class UserError(Exception):
    """Something the user gave is wrong: the message says what was given, what was expected, what to do.

    The command line prints it without a traceback; `--debug` shows where it came from.
    """
