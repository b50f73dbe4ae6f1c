package llm

// Nearest is the candidate closest to word by edit distance, for "did you mean" in errors; empty when none is close
// (more than a third of the word, and more than two edits, away).
func Nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return "" // nobody mistypes so much, and a client chooses the word
	}
	best, bestD := "", max(len(word)/3, 2)+1
	for _, c := range candidates {
		if max(len(c)-len(word), len(word)-len(c)) >= bestD {
			continue // at least so many edits; a client may ask this of thousands of names
		}
		if d := distance(word, c); d < bestD {
			best, bestD = c, d
		}
	}
	return best
}

// distance is Levenshtein's, over bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
