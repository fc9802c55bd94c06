'use strict';
// Puts the binary in the place of the launcher, so that it starts without Node. If that fails, the launcher stays, and works.

const fs = require('fs');
const path = require('path');

const launcher = path.join(__dirname, 'bin', 'codex-shim');
const beside = `${launcher}.new`;

try {
  const binary = require('./binary.js').find();
  fs.rmSync(beside, { force: true });
  try {
    fs.linkSync(binary, beside);
  } catch {
    // The package for this system may be on another file system.
    fs.copyFileSync(binary, beside);
    fs.chmodSync(beside, 0o755);
  }
  fs.renameSync(beside, launcher);
} catch (error) {
  fs.rmSync(beside, { force: true });
  process.stderr.write(`codex-shim: the launcher stays in place of the binary: ${error.message}\n`);
}
