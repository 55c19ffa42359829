import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/**/*.test.ts"], pool: "threads", testTimeout: 5_000 },
});
