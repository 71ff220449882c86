// The bundle that is committed: three files of fixed names, without source maps, hashes or anything inline.
import { defineConfig } from "vite";

export default defineConfig({
    base: "./",
    esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
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
            },
        },
    },
});
