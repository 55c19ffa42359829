/** The elements of the page, by their ids in camel case: `page.keyForm` is `#key-form`. */

const camel = (id) => id.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
export const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((each) => [camel(each.id), each]));
