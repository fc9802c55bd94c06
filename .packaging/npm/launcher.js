#!/usr/bin/env node
'use strict';
// Runs the binary. It has this file's place only where npm did not run install.js.

const { spawn } = require('child_process');
const path = require('path');
const tty = require('tty');

let binary;
try {
  binary = require('../binary.js').find();
} catch (error) {
  process.stderr.write(`codex-shim: ${error.message}\n`);
  process.exit(1);
}

// The name decides what codex-shim does.
const name = path.basename(process.argv[1]);
const args = process.argv.slice(2);

// Node 23.11 and later, except on Windows, can become another program.
if (typeof process.execve === 'function') process.execve(binary, [name, ...args], process.env);

const child = spawn(binary, args, { argv0: name, stdio: 'inherit' });
// A terminal sends these to both of us.
// Asking `process.stdout` would make a pipe that the child shares non-blocking.
const isAtTerminal = [0, 1, 2].some((descriptor) => tty.isatty(descriptor));
for (const signal of ['SIGINT', 'SIGQUIT']) process.on(signal, () => isAtTerminal || child.kill(signal));
for (const signal of ['SIGTERM', 'SIGHUP', 'SIGUSR2']) process.on(signal, () => child.kill(signal));
child.on('error', (error) => {
  process.stderr.write(`codex-shim: run ${binary}: ${error.message}\n`);
  process.exit(126);
});
child.on('exit', (status, signal) => {
  if (signal === null) process.exit(status);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
