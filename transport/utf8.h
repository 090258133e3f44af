// Text: whether it is UTF-8, as names on the wire must be, and whether it can be shown without harm.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// By RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// Whether `text` is a name that can be shown: UTF-8 without control characters. These are U+0000 to U+001F, U+007F to
// U+009F, and those that change the direction of what follows. They could clear a terminal or forge lines of a log.
bool is_printable(std::string_view text);

// Returns `text` with each byte of a control character, or of what is not UTF-8, as "\x1b". Line ends and tabs stay.
std::string printable(std::string_view text);

// The same for the text of a Status. For errors that another end caused: they may have names that it chose.
absl::Status printable(const absl::Status& status);

// Like printable(), and as one line: a line end becomes "\n". For lines of a log or a table with texts of another end.
std::string one_line(std::string_view text);

// Returns `text`, or, if it has more than `most` bytes, its beginning and "…": `most` bytes at most, of whole
// characters.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace bascule::inline v0
