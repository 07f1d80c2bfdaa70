import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;

/**
 * Answers the statements of standard input through JDBC; see test/t/client_libraries.pl.
 *
 * <p>The server's address is libpq's environment. A parameter goes out with no type as Types.OTHER; as a string it would
 * be a varchar.
 */
public class Jdbc {
	public static void main(String[] arguments) throws Exception {
		// A statement is prepared in the server the first time it runs.
		String url = String.format(
				"jdbc:postgresql://%s:%s/%s?prepareThreshold=1",
				System.getenv("PGHOST"), System.getenv("PGPORT"), System.getenv("PGDATABASE"));

		try (Connection connection = DriverManager.getConnection(url, System.getenv("PGUSER"), "");
				BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
			String line;

			while ((line = input.readLine()) != null) {
				System.out.println(answer(connection, line.split("\t")));
			}
		}
	}

	/** The first of the fields is the statement, the others are its parameters. */
	private static String answer(Connection connection, String[] fields) throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(fields[0])) {
			for (int i = 1; i < fields.length; i++) {
				set(statement, i, fields[i]);
			}
			if (!statement.execute()) {
				return statement.getUpdateCount() + " rows";
			}
			return firstRow(statement.getResultSet());
		} catch (SQLException error) {
			return error.getSQLState();
		}
	}

	private static void set(PreparedStatement statement, int i, String parameter) throws SQLException {
		if (parameter.startsWith("number:")) {
			statement.setInt(i, Integer.parseInt(parameter.substring("number:".length())));
		} else if (parameter.startsWith("string:")) {
			statement.setString(i, parameter.substring("string:".length()));
		} else {
			statement.setObject(i, parameter, Types.OTHER);
		}
	}

	private static String firstRow(ResultSet rows) throws SQLException {
		List<String> columns = new ArrayList<>();

		rows.next();
		for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
			columns.add(rows.getString(i));
		}
		return String.join(" ", columns);
	}
}
