"""One Python shell for the blocks of a page, run by the `python` that the page has on its PATH: needs the standard
library alone.

Each line of its input is a block as JSON: `where`, `text`, and whether it is a `session`. Each line of its output says
whether it went as the page says, and what it printed.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import sys
import traceback
from typing import Any

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def main() -> None:
    names: dict[str, Any] = {"__name__": "__page__"}
    answers = sys.stdout
    for line in sys.stdin:
        block = json.loads(line)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            went_well = (_session if block["session"] else _script)(names, block["text"], block["where"])
        answers.write(json.dumps({"went_well": went_well, "printed": printed.getvalue()}) + "\n")
        answers.flush()


def _session(names: dict[str, Any], text: str, where: str) -> bool:
    session = doctest.DocTestParser().get_doctest(text, names, where, where, 0)
    failed = doctest.DocTestRunner(optionflags=OPTIONS).run(session, clear_globs=False).failed
    names.update(session.globs)
    return failed == 0


def _script(names: dict[str, Any], text: str, where: str) -> bool:
    try:
        exec(compile(text, where, "exec"), names)
    except Exception:
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    sys.path[0] = ""
    main()
