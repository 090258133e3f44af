// For tests of a process that has no descriptor left.
#pragma once

#include <gtest/gtest.h>

// UndefinedBehaviorSanitizer, which the preset asan also has, opens a pipe when it looks at an object's type. Without a
// descriptor it reports errors that are none.
#if defined(__SANITIZE_ADDRESS__)
#define BASCULE_USES_ALL_DESCRIPTORS() GTEST_SKIP() << "UndefinedBehaviorSanitizer needs a descriptor"
#else
#define BASCULE_USES_ALL_DESCRIPTORS() static_cast<void>(0)
#endif
