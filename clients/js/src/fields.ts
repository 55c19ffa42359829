/** Checks values that come from the server. */

import { ProtocolError } from "./errors.js";

/** Checks a value, which `field` names for errors. Undefined stands for a field that is not there. */
export type Read<T> = (value: unknown, field: string) => T;

/** A reader for each field; the field is left out where its reader returns undefined. */
type Shape<T> = { readonly [Name in keyof T]-?: Read<T[Name]> };

const is =
  <T>(expected: string, isExpected: (value: unknown) => boolean): Read<T> =>
  (value, field) => {
    if (isExpected(value)) {
      return value as T;
    }
    throw new ProtocolError(field, expected, value);
  };

export const record = is<Record<string, unknown>>("an object", isRecord);
const isText = (value: unknown) => typeof value === "string";
export const text = is<string>("a string", isText);
export const boolean = is<boolean>("true or false", (value) => typeof value === "boolean");
export const number = is<number>("a number", Number.isFinite);
export const integer = (least: number) =>
  is<number>(`an integer from ${least}`, (value) => Number.isSafeInteger(value) && (value as number) >= least);
export const flushId = is<string | number>("a string or an integer", (value) => isText(value) || Number.isSafeInteger(value));
export const stretch = is<readonly [number, number]>(
  "[start_s, end_s]",
  (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite),
);

export const list =
  <T>(read: Read<T>): Read<readonly T[]> =>
  (value, field) =>
    is<unknown[]>("a list", Array.isArray)(value, field).map((item, index) => read(item, `${field}[${index}]`));

export const orNull =
  <T>(read: Read<T>): Read<T | null> =>
  (value, field) =>
    value === null ? null : read(value, field);

/** A field that may be left out. `missing` is its value then. */
export const optional =
  <T, Missing = undefined>(read: Read<T>, missing?: Missing): Read<T | Missing> =>
  (value, field) =>
    value === undefined ? (missing as Missing) : read(value, field);

export const object =
  <T>(shape: Shape<T>): Read<T> =>
  (value, field) => {
    const given = record(value, field);
    const readers = Object.entries<Read<unknown>>(shape);
    const fields = readers.map(([name, read]) => [name, read(given[name], `${field}.${name}`)] as const);
    return Object.fromEntries(fields.filter(([, item]) => item !== undefined)) as T;
  };

export const oneOf = <T extends string>(...values: readonly T[]): Read<T> =>
  is<T>(values.join(" or "), (value) => (values as readonly unknown[]).includes(value));

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
