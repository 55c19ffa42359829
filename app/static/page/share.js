/**
 * Shares the captions: the session is published in a room, whose link others open to read along.
 *
 * The room's token proves that it is ours. It stays on the device, so that the link is the same after a reload. Whether the
 * captions are shared is forgotten with the tab: a new visit shares nothing by itself.
 */

import { copyAndTell } from "./clipboard.js";
import { readJson, remove, write } from "./device.js";
import { page } from "./elements.js";
import { change, settings } from "./settings.js";
import { opens } from "./sheets.js";

const ROOM_KEY = "tutti.room";
const SHARED_KEY = "tutti.shared";
const NOTES = {
  off: "Nothing is shared now. When you share, everyone who has the link can read the captions.",
  ready: "The link appears as soon as you press Start.",
  shared: "Everyone who has this link can read what is said now, and what was said since you began to share. They hear nothing.",
  none: "This server gave no room, so the captions are not shared.",
};

let isShared = wasShared();
/** Whether a session has this room now. */
let isOpen = false;
let onShare = () => {};

/** `listener` is called when a running session must be published, or not any more. */
export function whenShared(listener) {
  onShare = listener;
}

/** Offers to share, or not. */
export function offerRooms(isOffered) {
  page.share.hidden = !isOffered;
  if (!isOffered) {
    isShared = false;
  }
  draw();
}

/** The value for `start.room`; undefined: the session is not shared. */
export function roomOption() {
  if (!isShared) {
    return undefined;
  }
  const room = readJson(ROOM_KEY);
  if (room !== undefined && room.asked === settings.roomName) {
    return { name: room.name, token: room.token };
  }
  return settings.roomName === "" ? {} : { name: settings.roomName };
}

/** Takes the room of a session that has begun; null: it has none. */
export function noteRoom(room) {
  isOpen = room !== null;
  if (room !== null) {
    const { name, path, token } = room;
    write(ROOM_KEY, JSON.stringify({ name, path, token, asked: settings.roomName }));
  } else if (isShared) {
    setShared(false);
    page.share.hidden = true;
    draw();
    page.shareNote.textContent = NOTES.none;
    return;
  }
  draw();
}

/** The server does not know the room any more, or it is another's. */
export function forgetRoom() {
  remove(ROOM_KEY);
  isOpen = false;
  setShared(false);
  draw();
}

opens(page.share, page.shareSheet, () => {
  page.roomName.value = settings.roomName;
  draw();
});

page.shared.addEventListener("change", () => {
  setShared(page.shared.checked);
  isOpen &&= isShared;
  draw();
  onShare();
});

page.roomForm.addEventListener("submit", (event) => {
  event.preventDefault();
  page.roomName.blur();
});

page.roomName.addEventListener("change", () => {
  if (page.roomName.reportValidity()) {
    change({ roomName: page.roomName.value });
    onShare();
  }
});

page.copyLink.addEventListener("click", () => void copyAndTell(page.link.value, "Link copied"));
page.sendLink.hidden = navigator.share === undefined;
page.sendLink.addEventListener("click", () => {
  // The user may close the system's sheet without choosing.
  navigator.share({ title: "Live captions", url: page.link.value }).catch(() => {});
});
page.link.addEventListener("focus", () => page.link.select());

function draw() {
  const room = readJson(ROOM_KEY);
  const hasLink = isShared && isOpen && room !== undefined;
  page.shared.checked = isShared;
  page.shareLink.hidden = !hasLink;
  document.body.toggleAttribute("data-shared", isShared);
  page.share.querySelector(".word").textContent = isShared ? "Shared" : "Share";
  page.shareNote.textContent = hasLink ? NOTES.shared : isShared ? NOTES.ready : NOTES.off;
  if (hasLink) {
    const link = new URL(room.path, location.href);
    page.link.value = link.href;
    page.openLink.href = link.href;
  }
}

function setShared(value) {
  isShared = value;
  try {
    sessionStorage.setItem(SHARED_KEY, String(value));
  } catch {
    // A reload shares nothing then.
  }
}

function wasShared() {
  try {
    return sessionStorage.getItem(SHARED_KEY) === "true";
  } catch {
    return false;
  }
}
