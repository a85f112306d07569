"""One module or package per `armslength` command, each with `main(arguments) -> exit code`."""
