"""Runs a module's functions named test_*: a TAP line for each, with the line and text of what failed. A test that cannot
be made here returns why."""


def run(module):
    """module: its globals(). Returns the exit status."""
    failed = 0
    for name, test in list(module.items()):
        if not name.startswith("test_"):
            continue
        try:
            why = test()
            print(f"ok - {name}" + (f" # SKIP {why}" if why else ""), flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            place = error.__traceback__
            while place.tb_next:
                place = place.tb_next
            print(f"not ok - {name}\n#   line {place.tb_lineno}: {what[:600]}", flush=True)
    return 1 if failed else 0
