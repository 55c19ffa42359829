/** The elements of the page, by what they are for. */

const element = (id) => document.getElementById(id);
export const page = {
  status: element("status"),
  level: element("level"),
  transcript: element("transcript"),
  model: element("model"),
  noPeople: element("no-people"),
  empty: element("empty"),
  finals: element("finals"),
  live: element("live"),
  latest: element("latest"),
  message: element("message"),
  keyForm: element("key-form"),
  key: element("key"),
  toggle: element("toggle"),
  toggleLabel: element("toggle-label"),
  language: element("language"),
  elapsed: element("elapsed"),
  delay: element("delay"),
  copy: element("copy"),
  clear: element("clear"),
};

