/** Where a session gets its audio from: a browser's microphone is one source, a recorder of React Native another. */
export {};
