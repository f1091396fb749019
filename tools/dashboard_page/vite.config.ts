// The page waits for its data at the top level, which older targets do not know.
export default { build: { target: "esnext", chunkSizeWarningLimit: 8000 }, esbuild: { jsx: "automatic" } };
