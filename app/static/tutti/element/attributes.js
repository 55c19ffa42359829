/** The attributes of `<tutti-captions>`, for the templates of frameworks. docs/captions_element.md says what each means. */
export {};
