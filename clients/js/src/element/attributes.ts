/** The attributes of `<tutti-captions>`, for the templates of frameworks. docs/captions_element.md says what each means. */

import type { Show } from "./line_view.js";

/** An attribute that is there or not. */
type Flag = "" | true | undefined;

export interface CaptionsAttributes {
  readonly server?: string | undefined;
  readonly room?: string | undefined;
  readonly lines?: number | string | undefined;
  readonly size?: number | string | undefined;
  readonly language?: string | undefined;
  readonly show?: Show | undefined;
  readonly labels?: string | undefined;
  /** The most speakers; empty for the server's number. */
  readonly speakers?: number | string | undefined;
  readonly times?: Flag;
  readonly "clear-after"?: number | string | undefined;
  readonly theme?: "light" | "dark" | "contrast" | undefined;
  readonly spoken?: string | undefined;
  readonly worklet?: string | undefined;
}
