// The steps of a decoder, each with its memory between tokens.
//
// Tokens pass through a chain of stages in fragments: whole characters of one token, and whether the token ends with
// them. A stage passes on what no later token can change, and keeps the rest. The last stage's output is the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <bascule/trainer_ref/text/pattern.h>

namespace bascule::ref {

// The byte of a token such as "<0x41>".
std::optional<char> byte_of_token(std::string_view token);

class DecoderStage {
 public:
  DecoderStage() = default;
  DecoderStage(const DecoderStage&) = delete;
  DecoderStage& operator=(const DecoderStage&) = delete;
  virtual ~DecoderStage() = default;

  virtual void take(std::string_view fragment, bool ends_token) = 0;
  virtual void finish() { next_->finish(); }  // all tokens were taken

  void set_next(DecoderStage* next) { next_ = next; }

 protected:
  void pass(std::string_view fragment, bool ends_token) { next_->take(fragment, ends_token); }
  DecoderStage* next_ = nullptr;
};

// A stage that needs a whole token at a time.
class WholeTokenStage : public DecoderStage {
 public:
  void take(std::string_view fragment, bool ends_token) final;

 private:
  virtual void take_token(std::string_view token) = 0;
  std::string token_;
};

// The end of a chain: joins all fragments.
class JoinStage : public DecoderStage {
 public:
  void take(std::string_view fragment, bool) override { text_ += fragment; }
  void finish() override {}
  std::string& text() { return text_; }

 private:
  std::string text_;
};

// Used without a decoder: puts a space between two tokens.
class SpacedStage : public DecoderStage {
 public:
  void take(std::string_view fragment, bool ends_token) override;

 private:
  bool is_first_ = true, begins_ = true;
};

// Turns characters that represent bytes into these bytes; all tokens become one. Bytes that are not UTF-8 become
// U+FFFD.
class ByteLevelStage : public WholeTokenStage {
 public:
  void finish() override;

 private:
  void take_token(std::string_view token) override;
  std::string bytes_;  // of a character that is not whole yet
};

// Turns byte tokens such as "<0xE2>" into bytes. If a run of them is not UTF-8, each byte becomes U+FFFD.
class ByteFallbackStage : public WholeTokenStage {
 public:
  void finish() override;

 private:
  void take_token(std::string_view token) override;
  void pass_bytes();
  std::string bytes_;
};

// All tokens become one.
class FuseStage : public DecoderStage {
 public:
  void take(std::string_view fragment, bool) override { pass(fragment, false); }
  void finish() override;
};

// Removes a character: at most `start` times where a token begins, `stop` times where it ends.
class StripStage : public DecoderStage {
 public:
  StripStage(std::string character, std::size_t start, std::size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop), left_(start) {}
  void take(std::string_view fragment, bool ends_token) override;

 private:
  std::string character_;
  std::size_t start_, stop_;
  std::size_t left_;      // times that it may still be removed at the beginning
  std::size_t held_ = 0;  // times that it occurs at the end so far, at most stop_
};

class ReplaceStage : public WholeTokenStage {
 public:
  ReplaceStage(const Pattern& pattern, std::string content) : pattern_(pattern), content_(std::move(content)) {}

 private:
  void take_token(std::string_view token) override;
  const Pattern& pattern_;
  std::string content_;
};

// ReplaceStage of a single character, which needs no whole token.
class ReplaceCharacterStage : public DecoderStage {
 public:
  ReplaceCharacterStage(std::string_view character, std::string content)
      : character_(character), content_(std::move(content)) {}
  void take(std::string_view fragment, bool ends_token) override;

 private:
  std::string character_, content_;
};

// Turns every replacement character (usually "▁") into a space. If encoding puts a space before the text, every one in
// the first token is removed instead.
class MetaspaceStage : public DecoderStage {
 public:
  MetaspaceStage(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), leaves_out_(prepends) {}
  void take(std::string_view fragment, bool ends_token) override;

 private:
  std::string replacement_;
  bool leaves_out_;
};

}  // namespace bascule::ref
