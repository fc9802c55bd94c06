#!/bin/sh
# Writes a formula for Homebrew, for the tarballs in a folder: .packaging/formula.sh FOLDER
# URL is where they are downloaded from, without the name of the file.

set -eu
cd "$(dirname "$0")/.."
folder=$1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
url=${URL:-https://codex-shim.invalid/v$version}

# The two lines that fetch the tarball of a system.
fetched() {
    name=codex-shim-$version-$1.tar.gz
    [ -f "$folder/$name.sha256" ] || { echo "formula.sh: $folder has no $name.sha256" >&2; exit 1; }
    printf '      url "%s/%s"\n      sha256 "%s"\n' "$url" "$name" "$(cut -d ' ' -f 1 "$folder/$name.sha256")"
}

mac_arm=$(fetched aarch64-macos)
mac_intel=$(fetched x86_64-macos)
linux_arm=$(fetched aarch64-linux)
linux_intel=$(fetched x86_64-linux)
cat <<END
class CodexShim < Formula
  desc "Transparent proxy for codex app-server: records every message, keeps approvals"
  homepage "$url"
  version "$version"
  license "Apache-2.0"

  on_macos do
    on_arm do
$mac_arm
    end
    on_intel do
$mac_intel
    end
  end

  on_linux do
    on_arm do
$linux_arm
    end
    on_intel do
$linux_intel
    end
  end

  def install
    bin.install "bin/codex-shim"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/codex-shim"
    zsh_completion.install "share/zsh/site-functions/_codex-shim"
    fish_completion.install "share/fish/vendor_completions.d/codex-shim.fish"
    doc.install Dir["share/doc/codex-shim/*"]
  end

  def caveats
    "Run \`codex-shim doctor\`: it checks this machine and names what is missing."
  end

  test do
    assert_match "codex-shim #{version}", shell_output("#{bin}/codex-shim --version")
    assert_match "\"held\"", shell_output("#{bin}/codex-shim demo --json")
  end
end
END
