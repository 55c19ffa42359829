"""Finds what makes a page hard to use for people with disabilities, with axe-core in the page."""

import asyncio
from typing import Any

from tests.browser.page import BrowserPage
from tests.node import require_client_packages

RUN = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => violations.flatMap(
    ({id, help, nodes}) => nodes.map(({target, html, failureSummary}) => (
        {id, help, target: target.flat().join(" "), html, failureSummary}))))"""
MAX_HTML_CHARS = 200
"""A violation is reported with the beginning of its element."""


async def violations(page: BrowserPage) -> list[str]:
    """The violations of axe-core's default rules in the page at rest: rule, sentence, selector, element, reason.

    The test is marked `browser` and `node`, and is given the time that `npm ci` takes (`timeout`).
    """
    if not await page.evaluate("'axe' in globalThis"):
        packages = await asyncio.to_thread(require_client_packages)
        source = await asyncio.to_thread((packages / "axe-core" / "axe.min.js").read_text)
        # The value of the script itself is a function, which a browser cannot hand out.
        await page.evaluate(f"{source}\n;null")
    # Text that fades in has too little contrast on its way.
    await page.come_to_rest()
    found: list[dict[str, Any]] = await page.evaluate(RUN)
    return [
        f"{each['id']}: {each['help']}: {each['target']}: {each['html'][:MAX_HTML_CHARS]}: {each['failureSummary']}"
        for each in found
    ]
