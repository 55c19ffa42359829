import { defineConfig } from "vitest/config";

export default defineConfig({
  // One thread that loads each module once: to load them again for every file takes longer than the tests.
  test: {
    include: ["test/**/*.test.ts"],
    pool: "threads",
    poolOptions: { threads: { isolate: false, singleThread: true } },
    testTimeout: 20_000,
  },
});
