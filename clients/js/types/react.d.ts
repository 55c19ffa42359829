/**
 * `<tutti-captions>` in JSX, for React 18 and 19: `import "tutti-asr-client/element/react"` loads the element, too.
 * React 18 listens to no events of custom elements: add listeners to the `ref`.
 */

import type { DetailedHTMLProps, HTMLAttributes } from "react";
import type { CaptionsAttributes, TuttiCaptions } from "../dist/element/index.js";

export * from "../dist/element/index.js";

/** The events as React 19 takes them: `ontutti-line={(event) => …}`. */
type CaptionsListeners = {
  readonly [Name in Extract<keyof HTMLElementEventMap, `tutti-${string}`> as `on${Name}`]?:
    | ((event: HTMLElementEventMap[Name]) => void)
    | undefined;
};

type CaptionsProps = DetailedHTMLProps<HTMLAttributes<TuttiCaptions>, TuttiCaptions>;

declare module "react" {
  namespace JSX {
    interface IntrinsicElements {
      "tutti-captions": Omit<CaptionsProps, keyof CaptionsAttributes> & CaptionsAttributes & CaptionsListeners;
    }
  }
}
