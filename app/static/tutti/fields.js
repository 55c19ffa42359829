import { ProtocolError } from "./errors.js";
const is = (expected, isExpected) => (value, field) => {
    if (isExpected(value)) {
        return value;
    }
    throw new ProtocolError(field, expected, value);
};
export const record = is("an object", isRecord);
const isText = (value) => typeof value === "string";
export const text = is("a string", isText);
export const boolean = is("true or false", (value) => typeof value === "boolean");
export const number = is("a number", Number.isFinite);
export const integer = (least) => is(`an integer from ${least}`, (value) => Number.isSafeInteger(value) && value >= least);
export const flushId = is("a string or an integer", (value) => isText(value) || Number.isSafeInteger(value));
export const stretch = is("[start_s, end_s]", (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite));
export const list = (read) => (value, field) => is("a list", Array.isArray)(value, field).map((item, index) => read(item, `${field}[${index}]`));
export const orNull = (read) => (value, field) => value === null ? null : read(value, field);
export const optional = (read, missing) => (value, field) => value === undefined ? missing : read(value, field);
export const object = (shape) => (value, field) => {
    const given = record(value, field);
    const readers = Object.entries(shape);
    const fields = readers.map(([name, read]) => [name, read(given[name], `${field}.${name}`)]);
    return Object.fromEntries(fields.filter(([, item]) => item !== undefined));
};
export const oneOf = (...values) => is(values.join(" or "), (value) => values.includes(value));
export function isRecord(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
