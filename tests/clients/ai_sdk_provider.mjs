// Drives `ai-sdk-provider-codex-cli` with its app-server provider. The only argument is the server's executable. Prints one
// line `[STREAM, MESSAGE]` for each message that the client saw.

import { execSync } from "node:child_process";

const { createCodexAppServer } = await import(`${process.env.NODE_MODULES}/ai-sdk-provider-codex-cli/dist/index.js`);

const tell = (stream, seen) => console.log(JSON.stringify([stream, seen]));

const provider = createCodexAppServer({
  defaultSettings: {
    codexPath: process.argv[2],
    logger: false,
    cwd: process.cwd(),
    approvalPolicy: "on-request",
    sandboxPolicy: "read-only",
    threadMode: "persistent",
    includeRawChunks: true,
    serverRequests: {
      onCommandExecutionApproval: async (request) => {
        tell("asked", request);
        return { decision: "accept" };
      },
      onFileChangeApproval: async (request) => {
        tell("asked", request);
        return { decision: "decline" };
      },
    },
  },
});
const model = provider(process.env.MODEL);
let threadId;
for (const says of ["hello", "run it", "write it"]) {
  execSync(process.env.BESIDE);
  const { stream } = await model.doStream({
    prompt: [{ role: "user", content: [{ type: "text", text: says }] }],
    providerOptions: threadId === undefined ? {} : { "codex-app-server": { threadId } },
  });
  for await (const part of stream) {
    threadId ??= part.providerMetadata?.["codex-app-server"]?.threadId;
    if (part.type === "response-metadata") continue; // An id and a time of its own.
    tell(part.id ?? part.toolCallId ?? part.rawValue?.params?.itemId ?? part.rawValue?.method ?? part.type, part);
  }
}
tell("models", await provider.listModels());
await provider.close();
