// Package limit answers "may it": windows, concurrency, balance and quota, held by one Reservation.
package limit
