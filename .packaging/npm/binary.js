'use strict';
// The path of the binary, which the package for this system holds.

const name = `@codex-shim/${process.platform}-${process.arch}`;

exports.find = () => {
  try {
    return require.resolve(`${name}/bin/codex-shim`);
  } catch {
    throw new Error(
      `the package ${name} is not installed; install it in the same command as codex-shim, and without --omit=optional`
    );
  }
};
