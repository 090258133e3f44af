#include <bascule/trainer_ref/chat/chat_template.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bascule::ref {
namespace {
}  // namespace
}  // namespace bascule::ref
