// The address of your server, as the phone reaches it. Phones want https, except for development.
export const SERVER = "https://captions.example.org";
// Not the key of the operator: a client secret, which your own server hands out (docs/access.md, "Keys").
export const API_KEY = undefined;
