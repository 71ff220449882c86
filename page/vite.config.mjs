// The bundle that is committed: three files of fixed names, without source maps, hashes or anything inline.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

/* The licences of what is in the bundle ask that their texts go with it. */
const LICENCES = ["preact", "uplot"].map((name) => {
    const text = readFileSync(new URL(`node_modules/${name}/LICENSE`, import.meta.url), "utf8").trim();
    return `/*! ${name}\n${text}\n*/`;
});

export default defineConfig({
    base: "./",
    esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "inline" },
    build: {
        outDir: "bundle",
        emptyOutDir: true,
        target: "es2022",
        assetsDir: "",
        assetsInlineLimit: 0,
        cssCodeSplit: false,
        modulePreload: false,
        sourcemap: false,
        reportCompressedSize: false,
        rollupOptions: {
            output: {
                entryFileNames: "app.js",
                assetFileNames: "app.[ext]",
                inlineDynamicImports: true,
                banner: LICENCES.join("\n"),
            },
        },
    },
});
