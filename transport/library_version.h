// Bascule's own version, by the rules of semver.org: while it is 0.x, a new minor version may change interfaces.
#pragma once

#define BASCULE_VERSION_MAJOR 0
#define BASCULE_VERSION_MINOR 1
#define BASCULE_VERSION_PATCH 0

// 10000 * major + 100 * minor + patch, for #if.
#define BASCULE_VERSION (BASCULE_VERSION_MAJOR * 10000 + BASCULE_VERSION_MINOR * 100 + BASCULE_VERSION_PATCH)

// Everything lives in the inline namespace bascule::v0. Its number grows with every release whose ABI differs, so that
// objects compiled against two such releases fail to link, instead of running wrong. Users write bascule::Sender,
// without v0.
