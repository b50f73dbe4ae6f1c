// Package tokens counts prompt and completion tokens, exactly and in bounded time. One Counter serves the estimate of a
// request, the text of a stream, and settlement when an upstream reports no usage, so the three can never disagree.
//
// # What holds
//
//  1. Within the budget a count is what OpenAI's tiktoken would give for the text as ordinary text: text that looks like a
//     special token is text. What is a letter, a mark or a number is asked of Go's edition of Unicode; tiktoken's may be
//     younger, and a token or two come out otherwise beside a character that only one of them knows.
//  2. A count is never below that. What the budget does not reach, and a piece of more than 128 KiB, counts by its
//     bytes: one token each, two for a three-byte character where vocab.bound can prove it.
//  3. No input costs more than its budget, 2 ms for each 100 kB begun. A budget is a number of units of work, not a clock, so
//     the same text always has the same count, but for one thing: a text of a request that was counted exactly is remembered,
//     and costs next to nothing when it comes again. A conversation that grew turn by turn is counted exactly however long it
//     has become.
//  4. Nothing is allocated once a goroutine's scratch has grown. Calls share the vocabularies, which never change, what is
//     remembered (known.go: half a megabyte, without a lock), and pooled scratch.
//  5. Models without a known vocabulary count o200k times a stated factor; images and files are flat.
//
// # How a text is counted
//
//	while text is left:
//	    budget spent?                    -> count the rest by its bytes
//	    cut off the next piece           (classTable: the encoding's regular expression, by hand)
//	    the piece is a token             -> 1
//	    it was merged lately             -> what it came to then
//	    else merge it                    -> the number of tokens left
//
// Merging by its definition joins, again and again, the adjacent pair of lowest rank. The result can be found from left to
// right instead (the algorithm of the bpe crate): take the longest token that the rest begins with and that is valid
// after the token before; if none is, shorten the one before. Two tokens are valid side by side when undoing their merges,
// latest first, shows none across the border that would have come earlier. Three facts make this exact: the final sequence
// is the only one whose neighbours are all valid; a token is always made by the same last merge, for inside its bytes
// merging runs as it would alone; and every token of these vocabularies is made by one (loading checks it).
//
// The tables are laid out for misses, which are nine of ten lookups: two bytes on each side of a border say of most that
// nothing is merged across, 14 bits of the hash stand beside each id, one bit for each pair that merges, one byte for each
// three-byte beginning with the lengths that exist, two for each further 8 bytes, so that a beginning that tokens of up to
// 128 bytes share costs no lookup for each of their lengths. They fit a core's own cache; the tables that confirm a hit
// need not, and the budget charges for that: a token not met lately is the dearest of all.
//
// # What was rejected
//
// tiktoken-go itself: 2 MB/s through a backtracking regular expression, quadratic in long words (40 kB of one letter took
// four seconds), some two allocations a token; it stays as a reference that the tests compare with, beside OpenAI's own core
// in its npm package. A scan for the minimum rank, or a heap for everything: 4 to 8 MB/s on Chinese, where pieces are long
// (heap.go takes over where the steps from the left are more: runs of a sign that has tokens of many lengths). A trie for the
// longest match: fast, but 12 MB. Guessing by the length of the text: wrong by a factor of four between English and Chinese,
// and what is reserved must be true.
package tokens
