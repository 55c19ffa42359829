/** `<tutti-captions>` in Vue's templates: `import "tutti-asr-client/element/vue"` loads the element, too. */

import type { EmitFn, HTMLAttributes, PublicProps } from "vue";
import type { CaptionsAttributes, TuttiCaptions } from "../dist/element/index.js";

export * from "../dist/element/index.js";

/** Templates look for `clear-after` under the name `clearAfter`. */
type Camel<Name extends string> = Name extends `${infer Head}-${infer Tail}` ? `${Head}${Capitalize<Tail>}` : Name;

type Props = { readonly [Name in keyof CaptionsAttributes as Camel<Name>]?: CaptionsAttributes[Name] };

type Events = {
  [Name in Extract<keyof HTMLElementEventMap, `tutti-${string}`>]: (event: HTMLElementEventMap[Name]) => void;
};

declare module "vue" {
  interface GlobalComponents {
    "tutti-captions": new () => TuttiCaptions & {
      /** @deprecated For the types of templates only: an element has no such property. */
      $props: Omit<HTMLAttributes, keyof Props> & PublicProps & Props;
      /** @deprecated As `$props`. */
      $emit: EmitFn<Events>;
    };
  }
}
