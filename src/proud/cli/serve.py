"""`proud serve`."""

from __future__ import annotations

from rich.markup import escape

from proud.cli.flags.serve import ServeArguments
from proud.cli.show import console, show_warning
from proud.config import check
from proud.errors import UserError
from proud.model.answers import AnswerOptions, guarantee
from proud.model.load import load_model
from proud.web.launch import Address, check_installed, listen, run_server

MEGABYTE = 1_000_000


def run(arguments: ServeArguments) -> int:
    check(arguments)
    check_installed()
    from proud.web.guard import Guard, is_loopback  # noqa: PLC0415
    from proud.web.service import PUBLIC, Service  # noqa: PLC0415

    if arguments.no_token and not is_loopback(arguments.host):
        raise UserError(f"--no-token: {arguments.host} can be reached from other machines, so a token is needed.")
    options = AnswerOptions(arguments.coverage, arguments.risk, arguments.sets)
    address = listen(arguments.host, arguments.port, token=not arguments.no_token)
    model = load_model(arguments.run, arguments.device)
    service = Service(
        model,
        options,
        batch=arguments.batch,
        most_requests=arguments.queue,
        most_bytes=arguments.megabytes * MEGABYTE,
    )
    app = Guard(service.app(), address.host, address.port, address.token, PUBLIC)
    console.print(guarantee(model.trust, options), soft_wrap=True)
    for text in model.warnings:
        show_warning(text)
    run_server(service.metrics.around(app), address, lambda: show_address(address))
    return 0


def show_address(address: Address) -> None:
    head = f"-H 'Authorization: Bearer {address.token}' " if address.token else ""
    console.print("Open this address for a try and for the API; Ctrl-C ends the service:")
    console.print(f"[bold]{escape(address.url)}[/bold]", soft_wrap=True, highlight=False)
    console.print(
        f"curl {head}--data-binary @IMAGE {address.base}predict", soft_wrap=True, highlight=False, markup=False
    )
