"""The client of the server's page, which Python makes of TypeScript: what is erased, and what is refused."""

from pathlib import Path

import pytest

from clients.js.page_client import NotErasable, build, erase

ERASED = {
    'import type A from "a"; import { type B, c, type D as E } from "b";': 'import { c, } from "b";',
    'export type { A } from "a"; export { type B, c }; export type * from "c";': "export { c };",
    'import json from "a"; export * as b from "b"; export * from "c";': "",
    "export interface A {} type B = 1; declare global { interface C {} } export declare const d: string;": "export {};",
    "function f(a: string): void; function f(this_: A, b?: B, ...c: C[]): a is B { return a; }": (
        "function f(this_, b, ...c) { return a; }"
    ),
    "const f = async <T extends A,>({ a = 1 }: T): Promise<T> => a!.b<C>(d as E, f satisfies G)!;": (
        "const f = async ({ a = 1 }) => a.b(d, f);"
    ),
    "let a!: A, b = <T,>(c: T) => c; for (let d = 0 as D; ; ) {}": "let a, b = (c) => c; for (let d = 0; ; ) {}",
    "const a = b ? !c : d?.e < f;": "",
    "export abstract class A<T> extends B<T> implements C, D {}": "export class A extends B {}",
    "class A { private readonly b?: B = 1; static override c = 2; protected d(): void; public override d() {} }": (
        "class A { b = 1; static c = 2; d() {} }"
    ),
    "class A { readonly b: B; #c: C; declare d: D; [e: string]: E; static f!: F; abstract g(): G; get h(): H {} }": (
        "class A { #c; get h() {} }"
    ),
    "/** A. */\nf(); // b\n\n\n  /* c */ g(\n  // d\n  h /* e */,\n);\n": "f();\n  g(\n  h,\n);",
    "const a = `b\n\n // c ${d as D}: ${ /* e */ f<G>() } /* h */`, i = '// j', k = /[/* l]/u;": (
        "const a = `b\n\n // c ${d}: ${ f() } /* h */`, i = '// j', k = /[/* l]/u;"
    ),
}
"""TypeScript, and the JavaScript in it; nothing if that is the same."""
REFUSED = {
    "enum A { B }": "expected JavaScript, or types that can be erased, got enum_declaration `enum A { B }`",
    "namespace a { b(); }": "got internal_module",
    "import a = require('b');": "got import_require_clause",
    "const a = <A>b;": "got type_assertion",
    "@a class B {}": "got decorator",
    "class A { constructor(private b: B) {} }": "got accessibility_modifier `private`",
    "class A { constructor(readonly b: B) {} }": "got readonly `readonly`",
    "class A { accessor b = 1; }": "",
    "function f(this: A) {}": "got this `this`",
    "const a: { b: } = 1;": "got type_annotation",
    "const a = (1;": "got ",
    "const a = 'b;": "got ",
    "const a = `b;": "got ",
    "a()\ntype B = 1;\n(b)": "expected a semicolon at the end, got expression_statement `a()`",
    "class A { b = 1\n c: C;\n [d] = 2; }": "expected a semicolon at the end, got public_field_definition `b = 1`",
}
"""TypeScript that cannot be erased, and a part of the error message."""


@pytest.mark.parametrize("source", ERASED)
def test_what_only_typescript_has_is_erased(source: str) -> None:
    """White space stays as it is, but for blank lines."""
    assert erase(source, Path("a.ts")) == (ERASED[source] or source) + "\n"


@pytest.mark.parametrize("source", REFUSED)
def test_what_cannot_be_erased_is_refused_with_its_place(source: str) -> None:
    with pytest.raises(NotErasable) as error:
        erase(f"\n{source}", Path("folder/a.ts"))
    assert str(error.value).startswith("folder/a.ts:2: expected ")
    assert REFUSED[source] in str(error.value)


def test_a_build_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    sources, built = tmp_path / "src", tmp_path / "built"
    (sources / "element").mkdir(parents=True)
    (sources / "element" / "a.ts").write_text('const a: string = "é";\n', "utf-8")
    (built / "element").mkdir(parents=True)
    (built / "element" / "b.js").touch()
    build(sources, built)
    assert [path.relative_to(built).as_posix() for path in built.rglob("*.*")] == ["element/a.js"]
    assert (built / "element" / "a.js").read_text("utf-8") == 'const a = "é";\n'


def test_a_build_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    """Also where there are no sources."""
    built = tmp_path / "a.js"
    built.touch()
    with pytest.raises(NotErasable, match="expected the TypeScript of the page's client, found none"):
        build(tmp_path / "src", tmp_path)
    (tmp_path / "a.ts").write_text("enum A {}")
    with pytest.raises(NotErasable, match=r"a\.ts:1: "):
        build(tmp_path, tmp_path)
    assert built.exists()
