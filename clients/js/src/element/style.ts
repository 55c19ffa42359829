/** The style of `<tutti-captions>`. A page changes it with the custom properties below and with `::part`. */

/**
 * Text inherits colour and font of the page. Text that may still change is lighter by opacity, so it fits any colours;
 * where the reader's system sets the colours, or asks for more contrast, it is underlined with dots instead.
 */
const STYLE = `
:host {
  display: flex; position: relative; flex-direction: column; box-sizing: border-box;
  min-width: 0; min-height: 0; max-height: 24em; overflow-wrap: break-word; text-align: start;
  font-size: var(--tutti-font-size, inherit); font-family: var(--tutti-font-family, inherit);
  line-height: var(--tutti-line-height, 1.4);
  color: var(--tutti-color, inherit); background: var(--tutti-background, transparent);
}
:host([hidden]), [hidden] { display: none !important; }
:host([theme="light"]) { --_text: #1c1b19; --_ground: #fff; color-scheme: light; }
:host([theme="dark"]) { --_text: #f2f1ed; --_ground: #141615; color-scheme: dark; }
:host([theme="contrast"]) { --_text: #fff; --_ground: #000; color-scheme: dark; }
:host([theme]) { color: var(--tutti-color, var(--_text)); background: var(--tutti-background, var(--_ground)); }
.root { display: flex; flex: 1; flex-direction: column; min-width: 0; min-height: 0; }
.status { padding: .3em .5em; font-size: max(.8em, .875rem); }
.scroller { flex: 1; min-height: 0; overflow-y: auto; overscroll-behavior: contain; overflow-anchor: none; }
.scroller:focus-visible, button:focus-visible { outline: .15em solid; outline-offset: -.15em; }
.finals { contain: layout style; }
.line { display: flow-root; margin: 0 0 var(--tutti-gap, .5em); }
.time { margin-inline-end: .3em; font-size: .75em; font-variant-numeric: tabular-nums; opacity: .75; }
.label { font-weight: 650; }
.original, .translation { margin: 0; white-space: pre-wrap; }
.text { background: var(--tutti-text-background, transparent); box-decoration-break: clone;
  -webkit-box-decoration-break: clone; }
.changing { color: var(--tutti-changing-color, inherit); opacity: var(--tutti-changing-opacity, .7); }
.cut::after { content: " …"; }
.original + .translation { font-style: italic; }
:host([lines]) { flex: none; max-height: none; }
:host([lines]) .scroller { max-height: 24em; }
:host([lines]) .rows {
  display: flex; flex: none; flex-direction: column; justify-content: flex-end; overflow: hidden; max-height: none;
  height: calc(var(--_lines) * var(--tutti-line-height, 1.4) * 1em);
}
.rows .content { flex: none; }
.rows .line { margin: 0; }
.silent { visibility: hidden; }
.latest {
  position: absolute; inset-block-end: .6em; inset-inline: 0; margin: auto; width: fit-content; min-height: 2.75rem;
  padding: .4em 1.1em; border: 1px solid; border-radius: 2em; font: inherit; font-size: max(.8em, .875rem);
  color: CanvasText; background: Canvas; cursor: pointer;
}
.spoken {
  position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap;
}
@media (forced-colors: active), (prefers-contrast: more) {
  .changing { opacity: 1; text-decoration: underline dotted; text-underline-offset: .2em; }
  .time { opacity: 1; }
}
`;

/** The style sheet of each document, which all of its elements share. */
const sheets = new WeakMap<Document, CSSStyleSheet>();

/** Gives an element the style of its document. It works under a content security policy without inline styles. */
export function adoptStyle(shadow: ShadowRoot): void {
  const { ownerDocument } = shadow;
  const view = ownerDocument.defaultView;
  if (view === null) {
    // It is shown nowhere, such as the content of a template.
    return;
  }
  let sheet = sheets.get(ownerDocument);
  if (sheet === undefined) {
    // Documents take no sheet of another one.
    sheet = new view.CSSStyleSheet();
    sheet.replaceSync(STYLE);
    sheets.set(ownerDocument, sheet);
  }
  shadow.adoptedStyleSheets = [sheet];
}
