#include <bascule/trainer_ref/grpo/reward/math_answer.h>

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "support/timing.h"
#include <bascule/trainer_ref/grpo/reward/math_text.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

bool matches(const std::string& expected, const std::string& completion) {
  return has_math_answer(completion, expected_math_answer(expected));
}

Rational number(const std::string& text) {
  const MathAnswer answer = read_math_answer(text);
  EXPECT_TRUE(answer.value) << text << " reads as the text " << answer.text;
  return answer.value.value_or(Rational(-12345));
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(MathAnswer, ReadsNumbersAsTheyAreWritten) {
  EXPECT_EQ(number("42"), 42);
  EXPECT_EQ(number("+42."), 42);
  EXPECT_EQ(number("-7"), -7);
  EXPECT_EQ(number("\u22127"), -7) << "the typographic minus";
  EXPECT_EQ(number("- 7"), -7);
  EXPECT_EQ(number("007"), 7) << "not octal";
  EXPECT_EQ(number("1,234,567.50"), Rational(2469135, 2));
  EXPECT_EQ(number("1{,}234"), 1234);
  EXPECT_EQ(number("1\\,234"), 1234);
  EXPECT_EQ(number(".5"), Rational(1, 2));
  EXPECT_EQ(number("0.1"), Rational(1, 10)) << "exactly";
  EXPECT_EQ(number("1.5e3"), 1500);
  EXPECT_EQ(number("2E-2"), Rational(1, 50));
  EXPECT_EQ(number("6.02 \\times 10^{23}"), Rational("602000000000000000000000"));
  EXPECT_EQ(number("1.5 \u00d7 10^-3"), Rational(3, 2000));
  EXPECT_EQ(number("10^{6}"), 1000000);
  EXPECT_EQ(number("5 million"), 5000000);
  EXPECT_EQ(number("$2.5 billion"), Rational("2500000000"));
}

TEST(MathAnswer, ReadsFractions) {
  EXPECT_EQ(number("3/4"), Rational(3, 4));
  EXPECT_EQ(number("6 / 8"), Rational(3, 4));
  EXPECT_EQ(number("\\frac{3}{4}"), Rational(3, 4));
  EXPECT_EQ(number("-\\dfrac{1,000}{-2000}"), Rational(1, 2));
  EXPECT_EQ(number("\\tfrac34"), Rational(3, 4));
  EXPECT_EQ(number("\\frac{ 1.5 } 2"), Rational(3, 4));
  EXPECT_EQ(number("2 1/2"), Rational(5, 2));
  EXPECT_EQ(number("-2\\frac{1}{2}"), Rational(-5, 2));
  EXPECT_EQ(number("2\u00bd"), Rational(5, 2));
}

TEST(MathAnswer, DropsUnitsAndWhatOnlyShowsIt) {
  for (const char* five : {"5 cm",
                           "5cm",
                           "5 m",
                           "5\\text{ cm}",
                           "5\\,\\text{cm}^2",
                           "5 \\mathrm{m/s}",
                           "$5",
                           "\\$5",
                           "5$",
                           "\u20ac5",
                           "5 %",
                           "5\\%",
                           "5^\\circ",
                           "5^{\\circ}",
                           "5\u00b0",
                           "\\text{5}",
                           "\\mathbf{5}",
                           "**5**",
                           "\\(5\\)",
                           "\\[ 5 \\]",
                           "(5)",
                           "{5}",
                           "x = 5",
                           "2 + 3 = 5",
                           "1,000 - 995 = 5",
                           "x\\approx5",
                           "5 apples.",
                           "5 km/h",
                           "5 (in hours)",
                           "\\left(5\\right)",
                           "5.00"})
    EXPECT_EQ(number(five), 5) << five;
  EXPECT_EQ(number("-$5"), -5);
}

TEST(MathAnswer, ReadsPowers) {
  EXPECT_EQ(number("2^{10}"), 1024);
  EXPECT_EQ(number("2^10"), 1024);
  EXPECT_EQ(number("2\u00b9\u2070"), 1024);
  EXPECT_EQ(number("-2^2"), -4);
  EXPECT_EQ(number("2^{-3}"), Rational(1, 8));
  EXPECT_EQ(number("1.5^{2} cm"), Rational(9, 4));
  EXPECT_EQ(number("10^{-2}"), Rational(1, 100));
  EXPECT_EQ(number("3\u00b2 million"), 9000000);
  EXPECT_TRUE(matches("1024", "The answer is $2^{10}$."));
  EXPECT_FALSE(matches("2", "The answer is $2^{10}$."));
  EXPECT_FALSE(matches("8", "The answer is $2^3/4$."));
  for (const char* large : {"2^{99999}", "7^{999999999999}", "0^{0}", "0^{-1}"})
    EXPECT_FALSE(read_math_answer(large).value) << large;
  EXPECT_TRUE(matches("2^{99999}", "\\boxed{2^{99999}}")) << "too large to compute, but written the same";
}

TEST(MathAnswer, ReadsDigitsInGroups) {
  for (const char* thousand : {"1{,}000", "1,000", "1\\,000", "1\\;000", "1\\ 000", "1,\\!000", "1\u2009000"})
    EXPECT_EQ(number(thousand), 1000) << thousand;
  EXPECT_EQ(number("10\\,000\\,000"), 10000000);
  EXPECT_FALSE(read_math_answer("2\\,3").is_number) << "not a group of three digits";
}

// Pairs of notations that mean the same.
TEST(MathAnswer, NotationDoesNotCount) {
  const std::vector<std::pair<const char*, const char*>> same = {
      {"\\sqrt{2}", "\\sqrt2"},
      {"\\sqrt{2}", "\\sqrt 2"},
      {"\\sqrt{2}", "\u221a2"},
      {"\\sqrt{12}", "\u221a12"},
      {"\\sqrt{x+1}", "\u221a(x + 1)"},
      {"\\sqrt{2}", "sqrt(2)"},
      {"3\\sqrt{2}", "3 \\cdot \\sqrt2"},
      {"\\sqrt[3]{2}", "\\sqrt[ 3 ] 2"},
      {"\\frac{\\sqrt{3}}{2}", "\\dfrac{\\sqrt3}2"},
      {"\\frac{\\sqrt{3}}{2}", "\\sqrt{3}/2"},
      {"\\frac{\\pi}{4}", "\\tfrac\\pi4"},
      {"\\frac{\\pi}{4}", "\u03c0/4"},
      {"-\\frac{x}{2}", "\\frac{-x}{2}"},
      {"\\frac{x+1}{2}", "(x+1)/2"},
      {"2\\pi", "2 * pi"},
      {"2\\pi r", "2 \\pi \\cdot r"},
      {"x^{2}", "x^2"},
      {"x^{2}", "x\u00b2"},
      {"x^{10}", "x^10"},
      {"1011_2", "1011_{2}"},
      {"\\text{Monday}", "monday."},
      {"\\{1, 2\\}", "\\left\\{2, 1\\right\\}"},
      {"\\{1, 2\\}", "\\lbrace 1.0, 2, 1 \\rbrace"},
      {"(\\frac12, 3)", "\\left(0.5, 3\\right)"},
      {"(1, 2), (3, 4)", "(1,2),(3.0,4)"},
      {"1, 2", "1.0,2"},
      {"[0, \\infty)", "[0, +\u221e)"},
      {"(-\\infty, 1] \\cup [2, 3)", "(-\u221e,1]\u222a[2,3)"},
      {"[1, 2]", "x \\in [1, 2]"},
      {"x \\le 5", "x \\leq 5"},
      {"x \\ge 5", "x\u22655"},
      {"\\pm 3", "\u00b13"},
      {"\\emptyset", "\\varnothing"},
      {"2x+1", "y = 2x + 1"},
      {"\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"}};
  for (const auto& [a, b] : same) {
    EXPECT_TRUE(matches(a, cat("\\boxed{", b, "}"))) << a << " and " << b;
    EXPECT_TRUE(matches(b, cat("\\boxed{", a, "}"))) << b << " and " << a;
  }
}

TEST(MathAnswer, WhatDiffersIsNeverTheSame) {
  const std::vector<std::pair<const char*, const char*>> different = {
      {"\\sqrt{2}", "\\sqrt{3}"},
      {"\\sqrt{2}", "2"},
      {"\\sqrt{12}", "\\sqrt12"},
      {"\\sqrt{2}", "\\sqrt[3]{2}"},
      {"\\frac{x}{2}", "\\frac{2}{x}"},
      {"\\frac{x+1}{2}", "x+1/2"},
      {"\\frac{1}{2x}", "1/2x"},
      {"\\frac{a}{bc}", "a/bc"},
      {"x^{2}", "x^{3}"},
      {"x^{2}", "2x"},
      {"x^{12}", "x^{1}2"},
      {"2^{10}", "2^{11}"},
      {"1024", "2^{9}"},
      {"(1, 2)", "(2, 1)"},
      {"(1, 2)", "[1, 2]"},
      {"[0, 1)", "[0, 1]"},
      {"1, 2", "2, 1"},
      {"\\{1, 2\\}", "(1, 2)"},
      {"\\{1, 2\\}", "\\{1, 3\\}"},
      {"\\{1, 2\\}", "12"},
      {"x=1, y=2", "x=2, y=1"},
      {"x=1, y=2", "1, 2"},
      {"\\pm 3", "3"},
      {"\\Delta", "\\delta"},
      {"5", "x \\le 5"},
      {"5", "x <= 5"},
      {"5", "5!"},
      {"5", "5 i"},
      {"5", "-5"},
      {"12", "1 2"},
      {"12", "1\\\\2"},
      {"\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}12\\end{pmatrix}"},
      {"3\\frac12", "\\frac{31}{2}"},
      {"50\\%", "0.5"},
      {"1011_2", "1011_3"},
      {"1011_2", "1011"},
      {"\\pi", "3.14159"},
      {"\\infty", "-\\infty"}};
  for (const auto& [a, b] : different) {
    EXPECT_FALSE(matches(a, cat("\\boxed{", b, "}"))) << a << " and " << b;
    EXPECT_FALSE(matches(b, cat("\\boxed{", a, "}"))) << b << " and " << a;
  }
}

TEST(MathAnswer, WhatIsNotOneNumberIsText) {
  for (const char* text : {"",           "five",
                           "5x",         "5\\pi",
                           "5 or 6",     "5, 6",
                           "(3, 4)",     "x = 5, y = 7",
                           "x=5 or x=7", "3/4/2020",
                           "3:30",       "2^{3^2}",
                           "2^3^2",      "2^3/4",
                           "5!",         "5 i",
                           "5 x",        "x <= 5",
                           "x >= 5",     "x != 5",
                           "\\pm 5",     "5 apples and 3 pears",
                           "\\sqrt{5}",  "[1, 2)",
                           "not 5",      "1,23",
                           "5 - 3",      "5 * 10"})
    EXPECT_FALSE(read_math_answer(text).is_number) << text;
  EXPECT_FALSE(read_math_answer("1/0").value);
  EXPECT_FALSE(matches("1/0", "#### 0"));
  EXPECT_TRUE(matches("1/0", "#### 1 / 0"));
  EXPECT_EQ(read_math_answer(" ( 3 , X ) ").text, "(3,x)");
}

TEST(MathAnswer, ABoxGoesFirst) {
  EXPECT_TRUE(matches("3", "So \\boxed{3}. There are 7 others.\n#### 9"));
  EXPECT_TRUE(matches("4", "\\boxed{3}, no: \\boxed{4}")) << "the last one";
  EXPECT_TRUE(matches("1/2", "thus $\\boxed{\\frac{1}{2}}$")) << "braces in braces";
  EXPECT_TRUE(matches("5", "\\boxed{x = \\boxed{5}}"));
  EXPECT_TRUE(matches("5", "\\fbox { 5 }"));
  EXPECT_TRUE(matches("5", "I write \\boxed{}. It is \\boxed{5} and \\boxed{}")) << "an empty one does not count";
  EXPECT_TRUE(matches("5", "\\boxed{5} and then \\boxed{6")) << "one that is cut off does not count";
  EXPECT_TRUE(matches("5", "{{ \\boxed{5}")) << "braces before it need not close";
  EXPECT_TRUE(matches("{1,2}", "\\boxed{\\{1, 2\\}}"));
  EXPECT_FALSE(matches("5", "\\boxed{5 \\text{ or } 6}"));
  EXPECT_FALSE(matches("5", "\\boxed{4} and the answer is 5"));
  EXPECT_FALSE(matches("5", "\\boxedx{4}, 6"));
}

TEST(MathAnswer, ThenWhatStandsBehindHashes) {
  EXPECT_TRUE(matches("She has 1,000 + 234 = <<1000+234=1234>>1,234.\n#### 1,234", "It is\n#### 1234\nThat was 8."));
  EXPECT_TRUE(matches("7", "#### 6\n#### 7"));
  EXPECT_TRUE(matches("7", "####\n\n7"));
  EXPECT_TRUE(matches("18", "#### $18 dollars"));
  EXPECT_FALSE(matches("6", "#### 5 or 6"));
  EXPECT_TRUE(matches("6", "#### Step 2: the sum\nIt is 6.")) << "a heading";
  EXPECT_TRUE(matches("6", "It is 6. ####"));
}

TEST(MathAnswer, ThenWhatTheAnswerIsSaidToBe) {
  EXPECT_TRUE(matches("42", "The answer is 42, because 6 * 7 is 42 and 3 + 4 is 7."));
  EXPECT_TRUE(matches("42", "**Final Answer:** 42\nThat took 3 steps."));
  EXPECT_TRUE(matches("42", "The answer is: $$42$$ of 100"));
  EXPECT_TRUE(matches("5", "the answer is x = 5 of 9"));
  EXPECT_TRUE(matches("5", "the answer is 2 + 3 = 5"));
  EXPECT_TRUE(matches("1/2", "The answer is $\\frac{1}{2}$."));
  EXPECT_TRUE(matches("8", "The answer is the sum.\nSo: 3 + 5 = 8"));
}

TEST(MathAnswer, ElseTheLastNumberCounts) {
  EXPECT_TRUE(matches("1,234", "There are 1234 of them"));
  EXPECT_TRUE(matches("1234", "There are 1,234."));
  EXPECT_FALSE(matches("234", "There are 1,234."));
  EXPECT_TRUE(matches("3", "1,2,3")) << "a list";
  EXPECT_TRUE(matches("0.5", "it is 1/2"));
  EXPECT_TRUE(matches("-3.5", "is \u22123.50 or so"));
  EXPECT_TRUE(matches("5", "10-5")) << "a minus between numbers is an operator";
  EXPECT_TRUE(matches("25", "an area of 25 cm^2")) << "an exponent is not a number";
  EXPECT_TRUE(matches("25", "25 = x_{1}"));
  EXPECT_TRUE(matches("2020", "on 3/4/2020"));
  EXPECT_TRUE(matches("5", "is...5"));
  EXPECT_FALSE(matches("5", "no idea"));
  EXPECT_FALSE(matches("5", ""));
}

TEST(MathAnswer, IsComparedExactly) {
  EXPECT_TRUE(matches("0.3", "3/10"));
  EXPECT_FALSE(matches("0.3333333333333333", "1/3"));
  EXPECT_FALSE(matches("9007199254740992", "9007199254740993")) << "the same as floating point numbers";
  EXPECT_TRUE(matches("100000000000000000000000000000000000001", "\\boxed{100000000000000000000000000000000000001.0}"));
  EXPECT_TRUE(matches("1e400", "1" + std::string(400, '0')));
  EXPECT_TRUE(matches("50", "50%")) << "a percent sign is a unit";
  EXPECT_TRUE(matches("50%", "\\boxed{50}"));
  EXPECT_FALSE(matches("0.5", "50%"));
}

TEST(MathAnswer, TextIsComparedAsText) {
  EXPECT_TRUE(matches("\\text{Monday}", "It was on \\boxed{monday}."));
  EXPECT_TRUE(matches("(3, 4)", "\\boxed{(3,4)}"));
  EXPECT_TRUE(matches("\\dfrac{x}{2}", "\\boxed{\\frac{x}{2}}"));
  EXPECT_TRUE(matches("Monday", "The answer is Monday. It rained."));
  EXPECT_TRUE(matches("Monday", " Monday\n"));
  EXPECT_FALSE(matches("Monday", "\\boxed{Tuesday}"));
  EXPECT_FALSE(matches("Monday", "#### 5"));
}

TEST(MathAnswer, WhatIsTooLongForANumberIsComparedDigitByDigit) {
  const std::string digits = "1" + repeated("234", 5000), other = "1" + repeated("234", 4999) + "235";
  std::string with_commas = "1";
  for (int i = 0; i < 5000; ++i) with_commas += ",234";
  EXPECT_FALSE(read_math_answer(digits).value);
  EXPECT_TRUE(matches(digits, "#### " + with_commas + " cm"));
  EXPECT_TRUE(matches(digits, "so it is " + with_commas));
  EXPECT_FALSE(matches(digits, "#### " + other));
  EXPECT_FALSE(matches("5", "#### " + digits));
  EXPECT_FALSE(matches("5", "1e999999999999999999999"));
  EXPECT_TRUE(matches("1e99999", "it is 1e99999"));
}

// A reader that backtracks would take hours for each of these; a test has two minutes. A sanitized build reads a tenth
// of each, in the same states.
TEST(MathAnswer, TakesTimeInProportionToTheText) {
  constexpr int kTimes = test::kSlowdown == 1 ? 200'000 : 20'000;
  constexpr std::size_t kBytes = 5 * kTimes;
  for (const std::string& completion : {std::string(kBytes, '7'),
                                        std::string(kBytes, '{'),
                                        std::string(kBytes, '}'),
                                        std::string(kBytes, ' '),
                                        std::string(kBytes, '\\'),
                                        std::string(kBytes, '#'),
                                        std::string(kBytes, '='),
                                        std::string(kBytes, '^'),
                                        repeated("\\boxed{", kTimes),
                                        repeated("\\boxed{", kTimes) + repeated("}", kTimes),
                                        repeated("\\frac{1}{", kTimes),
                                        repeated("\\frac", kTimes),
                                        repeated("1,234", kTimes),
                                        repeated(",123", kTimes),
                                        repeated("1/", kTimes),
                                        repeated("1 2/3", kTimes),
                                        repeated("1e", kTimes),
                                        repeated("1e999 ", kTimes),
                                        repeated("1*10^", kTimes),
                                        repeated("answer is ", kTimes),
                                        repeated("1 ", kTimes) + std::string(kBytes, ' '),
                                        repeated("####\n", kTimes),
                                        repeated("\\text{", kTimes),
                                        repeated("- ", kTimes),
                                        repeated("7^{", kTimes),
                                        repeated("2^9", kTimes),
                                        repeated("\\sqrt", kTimes),
                                        repeated("\u00b2", kTimes),
                                        repeated("\\frac", 600),
                                        repeated("{1,", 1000),
                                        repeated("(x/", 1000),
                                        repeated("x,", 2000),
                                        "answer is " + repeated("1+", kTimes) + "1"}) {
    EXPECT_FALSE(matches("5", completion)) << completion.substr(0, 10);
    EXPECT_FALSE(matches("five", completion)) << completion.substr(0, 10);
    (void)expected_math_answer(completion);
  }
}

TEST(MathText, KeepsWhatItDoesNotKnow) {
  EXPECT_EQ(plain_math("\\sqrt{2}\\pi"), "\\sqrt{2}\\pi");
  EXPECT_EQ(plain_math("$1$2$"), "1 2 ") << "two numbers stay two";
  EXPECT_EQ(plain_math("a\\"), "a");
  EXPECT_EQ(plain_math("}{"), "}{");
  EXPECT_EQ(plain_math("\xff\xe2\x88"), "\xff\xe2\x88") << "bytes that are not characters";
}

}  // namespace
}  // namespace bascule::ref
